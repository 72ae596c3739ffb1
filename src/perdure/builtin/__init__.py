"""Bundled workflows. They import from `perdure` alone, so each shows what any author can do."""
