//! svc-edge, as far as it is there: what decides. No task, socket or file yet; the service is built on these.
//!
//! Start with [`conditional`] for what a request gets of a representation that is there, [`freshness`] for whether a stored
//! answer may be used, [`fills`] for who fetches what and who waits, [`pmtiles`] for what a pack is.

pub mod asset_path;
pub mod cache_control;
pub mod cache_status;
pub mod conditional;
pub mod etag;
pub mod eviction;
pub mod fills;
pub mod freshness;
pub mod pmtiles;
pub mod range;
pub mod stored_fields;
pub mod vary;
