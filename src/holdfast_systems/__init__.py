"""Four systems on Holdfast: passport, convert, compute and documents; and demonstrations of all.

(The fifth system, webhooks, is a part of Holdfast itself: `holdfast.webhooks`.)
"""
