//! The core of the clients as a Python extension. All texts are the JSON that `clients/core/README.md` describes.

use std::sync::{Mutex, PoisonError};

use pyo3::{exceptions::PyValueError, prelude::*};

/// A process's connection to a table of leases.
#[pyclass(frozen)]
struct Client(client_core::Client);

/// One lease, from its request to its end.
#[pyclass(frozen)]
struct Session(Mutex<client_core::Session>);

#[pymethods]
impl Client {
    #[new]
    fn new(settings: &str) -> PyResult<Self> {
        client_core::Client::new(settings).map(Self).map_err(PyValueError::new_err)
    }

    fn start(&self, start: &str) -> PyResult<Session> {
        let session = client_core::Session::new(&self.0, start).map_err(PyValueError::new_err)?;
        Ok(Session(Mutex::new(session)))
    }
}

#[pymethods]
impl Session {
    // Keeps the GIL, since a step takes less time than giving it up and getting it back.
    fn step(&self, input: &str) -> PyResult<String> {
        let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        session.step(input).map_err(PyValueError::new_err)
    }
}

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::{Client, Session};
}
