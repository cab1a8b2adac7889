"""The members of a body around its prompt: the model, the session, what is asked of the answer."""
