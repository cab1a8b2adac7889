"""SGLang 0.5.23's HTTP surface over the engine model, for one emulated replica."""
