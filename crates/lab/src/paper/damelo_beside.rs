//! Every design in the thesis's orderings, the shipped store among them: creates and deletes where
//! the thesis has them, reads in all. Threads: none.

use super::beside::{Stage, Workload, exhibit, stage_of};
use super::damelo::{
    CLIENTS_DAMELO, DISK_BYTES, GROUPS, Measured, Ordering, POOL_BYTES, Stages, config,
};
use super::{Exhibit, PaperError, PaperOptions};
use crate::design::{DesignOptions, GroupRule};
use crate::machine::{Report, RunOptions};
use crate::request::Catalogue;

const WHY_CREATE: &str = "Ours alone. Disk time is until all is on the disk, where a design's \
    promise is no other: what UCFS and the mapped files hold in memory is written at the end.";

const WHY_READ: &str = "Ours alone. Both are told which groups are popular. The store reads an \
    object or its page, whatever it expects to cost less. It begins with what its memory kept of the \
    creates, an eighth of the objects at most, where the others begin with nothing: a store is \
    not opened anew between the two.";

const WHY_DELETE: &str = "Ours alone. Who keeps its tables in memory has nothing to do; the \
    store's journal takes its deletes as well, so that what was deleted stays so after a crash.";

type OfStage = fn(&Measured) -> &Report;

/// The tables of an ordering: every design with the same memory and groups, and the thesis's own
/// systems.
pub(super) fn tables(
    paper: &PaperOptions<'_>,
    ordering: Ordering,
    stages: &Stages,
    (files, pages): (&Measured, &[(u32, Measured)]),
) -> Result<Vec<Exhibit>, PaperError> {
    let scale = paper.scale_down;
    let options = DesignOptions {
        cache_bytes: DISK_BYTES / u64::from(scale),
        memory_bytes: POOL_BYTES / u64::from(scale),
        grouping: GroupRule::Given,
        ..DesignOptions::default()
    };
    let run = RunOptions { clients: CLIENTS_DAMELO, ..RunOptions::default() };
    let loved = Some((ordering.popular_groups, GROUPS));
    let read = Stage {
        loved_groups: loved.filter(|(popular, _)| *popular > 0),
        ..Stage::of(&stages.read, RunOptions { cold_start: true, ..run })
    };
    let all = [Stage::of(&stages.create, run), read, Stage::of(&stages.delete, run)];
    // What nobody looks at need not be played.
    let has_all = ordering.has_all_stages();
    let rows = Workload {
        paper,
        stages: if has_all { &all } else { &all[..2] },
        names: &Catalogue::new(),
        config: &config(scale, 4),
        options: &options,
        what: "every design in damelo's orderings",
    };
    let rows = rows.all()?;
    let shown: [(&str, OfStage, &'static str); 3] = [
        ("create", |measured| &measured.create, WHY_CREATE),
        ("read", |measured| &measured.read, WHY_READ),
        ("delete", |measured| &measured.delete, WHY_DELETE),
    ];
    let shown = shown.into_iter().enumerate().filter(|(_, (name, ..))| has_all || *name == "read");
    let tables = shown.map(|(at, (name, of, why))| {
        let mut named = vec![("ext2".to_owned(), of(files).clone())];
        let of_page =
            |(kb, measured): &(u32, Measured)| (format!("damelo {kb} KB"), of(measured).clone());
        named.extend(pages.iter().map(of_page));
        named.extend(stage_of(&rows, at));
        exhibit(&format!("{} {name}", ordering.name), &named, why)
    });
    Ok(tables.collect())
}
