"""The registry and one file per family of tools. A handler acts only with the permit of its call."""
