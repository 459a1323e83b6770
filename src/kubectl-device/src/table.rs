//! Columns in the way of kubectl: as wide as their widest cell, three spaces apart.

/// Writes rows under their headings. Trailing blanks are left out.
pub(crate) fn columns(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let heading = headings.iter().map(|heading| (*heading).to_owned()).collect();
    std::iter::once(&heading).chain(rows).map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, &width)| format!("{cell:width$}"));
    let joined = cells.collect::<Vec<_>>().join("   ");
    format!("{}\n", joined.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["n1".to_owned(), "gpu-\u{fc}".to_owned()], vec!["node-2".to_owned(), String::new()]];
        assert_eq!(columns(&["NODE", "DEVICE"], &rows), "NODE     DEVICE\nn1       gpu-\u{fc}\nnode-2\n");
    }
}
