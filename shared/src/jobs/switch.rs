//! Reads which jobs are switched on.

use std::collections::BTreeSet;

use crate::config::{InvalidConfig, Variables};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
    Only(BTreeSet<String>),
    Without(BTreeSet<String>),
}

impl Switch {
    /// Reads the environment variable `JOBS`. If it is not set, no job is on.
    ///
    /// Its value is `on`, `off`, the names of the jobs that are on (`report,invoices`), or the names
    /// of the jobs that are off (`-report,-invoices`).
    pub fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        let Some(text) = variables.value("JOBS") else { return Ok(Self::Off) };
        match text.as_str() {
            "on" => return Ok(Self::On),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let set = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let left_out: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix('-')).collect();
        if !names.is_empty() && left_out.len() == names.len() && !left_out.contains(&"") {
            return Ok(Self::Without(set(left_out)));
        }
        if names.is_empty() || !left_out.is_empty() || names.contains(&"on") || names.contains(&"off") {
            let reason =
                "must be `on`, `off`, names of jobs to switch on (`a,b`), or names of jobs to leave out (`-a,-b`)";
            return Err(InvalidConfig::new("JOBS", reason));
        }
        Ok(Self::Only(set(names)))
    }

    pub fn is_on(&self, job: &str) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Only(names) => names.contains(job),
            Self::Without(names) => !names.contains(job),
        }
    }

    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        let names = match self {
            Self::On | Self::Off => None,
            Self::Only(names) | Self::Without(names) => Some(names),
        };
        names.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(variables: &[(&str, &str)]) -> [bool; 2] {
        let switch = Switch::read(&variables).unwrap();
        ["a", "b"].map(|job| switch.is_on(job))
    }

    /// Promise: `JOBS` switches jobs on and off; `jobs run` runs one at the next tick all the same.
    #[test]
    fn jobs_variable_switches_jobs_on_and_off() {
        assert_eq!(on(&[]), [false, false]);
        assert_eq!(on(&[("JOBS", "off")]), [false, false]);
        assert_eq!(on(&[("JOBS", "on")]), [true, true]);
        assert_eq!(on(&[("JOBS", "a, c")]), [true, false]);
        assert_eq!(on(&[("JOBS", "-a")]), [false, true]);
    }

    #[test]
    fn mixed_or_empty_jobs_variable_is_refused() {
        for text in ["a,-b", "on,a", "off,-a", ",", " , ", " ", "-", "-a,-"] {
            let refused = Switch::read(&[("JOBS", text)].as_slice()).unwrap_err().to_string();
            assert!(refused.starts_with("JOBS: must be `on`, `off`"), "{refused}");
        }
    }
}
