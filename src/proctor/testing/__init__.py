"""Scripted stand-ins that ship with Proctor, so that users can rehearse too. Everything here is simulated."""
