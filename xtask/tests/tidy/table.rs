//! Tables in documents that programs read too: between `<!-- tidy: NAME -->` and `<!-- tidy: end -->`.

/// One row: the texts of its cells, without the marks around code.
pub(crate) type Row = Vec<String>;

/// Returns the rows of a table, without its head.
///
/// # Errors
/// Says which part of the table is missing.
pub(crate) fn rows(document: &str, name: &str) -> Result<Vec<Row>, String> {
    let begin = format!("<!-- tidy: {name} -->");
    let (_, after) = document.split_once(&begin).ok_or_else(|| format!("there is no `{begin}`"))?;
    let (inside, _) = after.split_once("<!-- tidy: end -->").ok_or_else(|| format!("the table `{name}` has no end"))?;
    let lines = inside.lines().map(str::trim).filter(|line| line.starts_with('|'));
    let rows: Vec<Row> = lines.skip(2).map(cells).collect();
    if rows.is_empty() {
        return Err(format!("the table `{name}` has no rows"));
    }
    Ok(rows)
}

fn cells(line: &str) -> Row {
    let inside = line.trim_matches('|');
    inside.split('|').map(|cell| cell.trim().replace('`', "")).collect()
}

/// Returns the parts of a cell that lists some: `a, b`. A dash stands for none.
pub(crate) fn list(row: &Row, column: usize) -> Vec<String> {
    let cell = row.get(column).map_or("", String::as_str);
    let parts = cell.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "–");
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_read_and_its_absence_is_told() {
        let document = "text\n<!-- tidy: x -->\n\n| a | b |\n| --- | --- |\n| `one` | `two`, three |\n| four | – |\n\n<!-- tidy: end -->\n| no |";
        let rows = rows(document, "x").expect("a table");
        assert_eq!(rows, [["one", "two, three"], ["four", "–"]]);
        assert_eq!(rows.iter().map(|row| list(row, 1)).collect::<Vec<_>>(), [vec!["two", "three"], vec![]]);
        assert!(super::rows(document, "y").is_err());
        assert!(super::rows("<!-- tidy: x -->", "x").is_err());
        assert!(super::rows("<!-- tidy: x --><!-- tidy: end -->", "x").is_err());
    }
}
