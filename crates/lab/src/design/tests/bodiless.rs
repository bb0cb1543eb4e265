//! Requests without a body of their own (304, HEAD, no bytes), in every design.

use super::*;

/// Outcomes of requests, and whether the last of them did anything.
fn outcomes(entry: &Entry, requests: &[Request]) -> Vec<Outcome> {
    let options = small();
    let inputs =
        DesignInputs { options: &options, requests: requests.into(), drive: &config().drive };
    let mut design = (entry.make)(&inputs);
    let (mut out, names) = (Vec::new(), Catalogue::new());
    design.prepare(&mut out);
    let mut one = |request: &Request| {
        out.clear();
        let outcome = design.request(request, &names, &mut out);
        assert!(outcome != Outcome::LeftOut || out.is_empty(), "{}: {out:?}", entry.name);
        outcome
    };
    requests.iter().map(&mut one).collect()
}

/// Before anything is stored it is about nothing; then it hits and leaves what is stored as it is;
/// an object that was deleted is not there any more.
#[test]
fn what_has_no_body_hits_what_is_stored_and_changes_nothing() {
    use Outcome::{Done, Hit, LeftOut, Stored};
    let (bodiless, whole) = (read(1, 0), read(1, 7_000));
    let write = Request { op: Op::Write, ..bodiless };
    let requests =
        [bodiless, write, whole, bodiless, whole, write, whole, bodiless, delete(1), bodiless];
    let expected = [LeftOut, LeftOut, Stored, Hit, Hit, LeftOut, Hit, Hit, Done, LeftOut];
    for entry in &REGISTRY {
        assert_eq!(outcomes(entry, &requests), expected, "{}", entry.name);
    }
}

/// All of it is read: what no size is said of has the size that is stored.
#[test]
fn what_has_no_body_reads_what_is_stored() {
    for entry in &REGISTRY {
        let options = small();
        let of = |size_bytes| {
            let requests = [read(1, 7_000), read(1, size_bytes)];
            let report = run_named(entry.name, &options, &requests);
            (report.hits, io(&report), report.disk_total_ns(), report.facts)
        };
        assert_eq!(of(0), of(7_000), "{}", entry.name);
    }
}

/// Neither requests nor their time count where they are about nothing.
#[test]
fn what_is_left_out_is_counted_apart() {
    let requests = [read(1, 0), read(2, 0), read(1, 7_000), read(1, 0)];
    let report = run_named("squid", &DesignOptions::default(), &requests);
    assert_eq!((report.requests, report.reads, report.hits), (2, 2, 1));
    assert_eq!((report.bodiless_requests, report.responses.count()), (2, 2));
    assert_eq!((report.read_bytes, report.hit_bytes), (7_000, 0));
}
