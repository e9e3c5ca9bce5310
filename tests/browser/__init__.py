"""Tests in a real JupyterLab and a real Chromium: what only a browser can show."""
