"""`tune`: a live service's settings tried one after another, each judged, and always the way back."""
