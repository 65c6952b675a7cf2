"""Recognize what a job's result contains, to show it as such. Pure: no page, no request."""
