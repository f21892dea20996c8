//! Tests that need more than one crate. Everything is under `tests/tests`; `tests/real` has the suites that run the
//! release programs together with browsers, editors and load balancers.
