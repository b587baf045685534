//! The command line as a client of the HTTP surfaces.
