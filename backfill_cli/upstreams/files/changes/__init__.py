"""The change logs of a landing folder: what is new, in which order, and how each format's rows become changes."""
