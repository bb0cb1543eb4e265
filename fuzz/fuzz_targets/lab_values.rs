//! Fuzzes what the lab is told in words: policies, designs, sizes, columns, drives, manifests and
//! reports. Threads: none.
#![no_main]

use damelo_lab::design::DesignSpec;
use damelo_lab::disk::Drive;
use damelo_lab::output::Written;
use damelo_lab::policy::PolicySpec;
use damelo_lab::sim::SizeSpec;
use damelo_lab::trace::{ColumnOptions, Format, WriteFormat, WrittenTrace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for policy in PolicySpec::parse_list(text).unwrap_or_default() {
        // The label names the same policy with the same parameters.
        let again = PolicySpec::parse(policy.label()).map(|again| again.label().to_owned());
        assert_eq!(again.as_deref().ok(), Some(policy.label()));
    }
    if let Ok(design) = DesignSpec::parse(text) {
        let again = DesignSpec::parse(design.label()).map(|again| again.label().to_owned());
        assert_eq!(again.as_deref().ok(), Some(design.label()));
        let _ = design.options(&Default::default());
    }
    for size in SizeSpec::parse_list(text).unwrap_or_default() {
        assert!(!matches!(size, SizeSpec::Share(share) if !share.is_finite() || share <= 0.0));
    }
    if let Ok(columns) = ColumnOptions::parse(text) {
        let given = [columns.time_column, columns.object_column, columns.size_column];
        assert!(given.iter().flatten().all(|column| (1..=1024).contains(column)));
    }
    if let Ok(Some(format)) = Format::by_name(text) {
        assert_eq!(Format::by_name(format.name()).ok(), Some(Some(format)));
    }
    if let Some(format) = WriteFormat::by_name(text) {
        assert_eq!(WriteFormat::by_name(format.name()), Some(format));
    }
    let _ = WriteFormat::of_file(text);
    let _ = damelo_lab::system::parse_files(text);
    let _ = damelo_lab::system::parse_mapped(text);
    let _ = WrittenTrace::of_manifest(text);
    if let Ok(written) = Written::parse(text) {
        assert_eq!(written.difference(&written), None);
    }
    let _ = Drive::parse("drive", text);
});
