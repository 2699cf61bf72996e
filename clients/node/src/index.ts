export * from "./errors.js";
export { Lease, Leases, type LeasesOptions, type SeenLease, type Terms } from "./leases.js";
