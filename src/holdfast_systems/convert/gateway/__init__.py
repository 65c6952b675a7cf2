"""The reference gateway: an HTTP server that converts PDF files to XML."""
