"""A web page that shows builds, stores and the cache: read-only, from logs and manifests, for this machine only by default."""
