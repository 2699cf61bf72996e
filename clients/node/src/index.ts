export * from "./errors.js";
export { JobRun, type JobOptions } from "./jobs.js";
export { Lease, Leases, type LeasesOptions, type SeenLease, type Terms } from "./leases.js";
