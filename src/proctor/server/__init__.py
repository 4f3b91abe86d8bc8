"""The HTTP and WebSocket front doors: every call they make goes through the gate, as the human whose token was shown."""
