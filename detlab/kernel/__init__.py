"""One kernel, alone: replay a captured call many times and say what was seen, and how far that reaches."""
