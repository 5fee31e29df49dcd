//! Models that come with hookpoint.
