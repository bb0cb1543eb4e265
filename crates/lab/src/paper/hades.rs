use super::{PaperError, PaperOptions, Table};
pub(super) fn run(_options: &PaperOptions<'_>) -> Result<Vec<Table>, PaperError> {
    Ok(Vec::new())
}
