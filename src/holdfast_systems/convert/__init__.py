"""Convert: uploaded PDF files become XML files by way of an HTTP gateway.

The system is `holdfast_systems.convert.service.Convert`. Nothing is imported here, because each
conversion starts a small process out of this package.
"""
