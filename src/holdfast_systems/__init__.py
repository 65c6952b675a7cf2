"""Four systems on Holdfast (passport, convert, compute, documents), and demos of all five.

The fifth, webhooks, is part of Holdfast itself: `holdfast.webhooks`.
"""
