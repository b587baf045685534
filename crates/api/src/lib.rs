//! The HTTP surfaces: NetApp Volumes v1, Filestore v1, metrics.
