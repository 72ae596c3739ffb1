"""The skins over the one read model and the one control facade (DESIGN 9). They do not know each other."""
