"""Convert: uploaded PDF files become XML files through an HTTP gateway.

The system is `holdfast_systems.convert.service.Convert`. Nothing is imported here, because each
conversion starts a small process from this package.
"""
