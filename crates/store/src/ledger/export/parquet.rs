//! A Parquet file of calls: a row group at a time, each column typed and optional.

use super::columns::{COLUMNS, Cell};
use super::instant;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use rusqlite::Row;
use std::io::{self, Write};
use std::sync::Arc;

/// Calls of a row group, which is held in memory: about 60 MB.
const GROUP: usize = 50_000;

/// A Parquet file that is being written.
pub(super) struct Table {
    file: SerializedFileWriter<Box<dyn Write + Send>>,
    columns: Vec<Column>,
    rows: usize,
}

/// The values of a column that are known, and for each row whether it is.
struct Column {
    known: Vec<i16>,
    values: Values,
}

enum Values {
    Texts(Vec<ByteArray>),
    Whole(Vec<i64>),
    Flags(Vec<bool>),
    Numbers(Vec<f64>),
}

/// The I/O error in a Parquet error, so that a closed pipe is recognised.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}

fn fresh() -> Vec<Column> {
    let column = |(_, cell): &(&str, Cell)| Column {
        known: Vec::new(),
        values: match cell {
            Cell::Text => Values::Texts(Vec::new()),
            Cell::Instant | Cell::Count => Values::Whole(Vec::new()),
            Cell::Flag => Values::Flags(Vec::new()),
            Cell::Number => Values::Numbers(Vec::new()),
        },
    };
    COLUMNS.iter().map(column).collect()
}

fn message() -> String {
    let field = |(name, cell): &(&str, Cell)| match cell {
        Cell::Text => format!("optional binary {name} (UTF8);"),
        Cell::Instant => format!("optional int64 {name} (TIMESTAMP(MILLIS,true));"),
        Cell::Count => format!("optional int64 {name};"),
        Cell::Flag => format!("optional boolean {name};"),
        Cell::Number => format!("optional double {name};"),
    };
    let fields: Vec<_> = COLUMNS.iter().map(field).collect();
    format!("message call {{ {} }}", fields.join(" "))
}

impl Table {
    pub(super) fn begin(file: Box<dyn Write + Send>) -> io::Result<Table> {
        let schema = parse_message_type(&message()).map_err(failed)?;
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(concat!("tokengauge ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        Ok(Table {
            file: file.map_err(failed)?,
            columns: fresh(),
            rows: 0,
        })
    }

    pub(super) fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<io::Result<()>> {
        for (at, (column, (_, cell))) in self.columns.iter_mut().zip(COLUMNS).enumerate() {
            column.add(row, at, *cell)?;
        }
        self.rows += 1;
        Ok(if self.rows == GROUP {
            self.group()
        } else {
            Ok(())
        })
    }

    fn group(&mut self) -> io::Result<()> {
        let columns = std::mem::replace(&mut self.columns, fresh());
        self.rows = 0;
        let mut group = self.file.next_row_group().map_err(failed)?;
        for column in columns {
            if let Some(mut writer) = group.next_column().map_err(failed)? {
                column.write(&mut writer).map_err(failed)?;
                writer.close().map_err(failed)?;
            }
        }
        group.close().map_err(failed)?;
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.group()?;
        }
        self.file.close().map_err(failed)?;
        Ok(())
    }
}

impl Column {
    fn add(&mut self, row: &Row<'_>, at: usize, cell: Cell) -> rusqlite::Result<()> {
        let known = match &mut self.values {
            Values::Texts(all) => {
                let text: Option<String> = row.get(at)?;
                push(all, text.map(|text| ByteArray::from(text.into_bytes())))
            }
            Values::Whole(all) if cell == Cell::Instant => push(all, Some(instant(row)?)),
            Values::Whole(all) => push(all, row.get(at)?),
            Values::Flags(all) => push(all, row.get(at)?),
            Values::Numbers(all) => push(all, row.get(at)?),
        };
        self.known.push(i16::from(known));
        Ok(())
    }

    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<usize, ParquetError> {
        let known = Some(self.known.as_slice());
        match &self.values {
            Values::Texts(all) => writer
                .typed::<ByteArrayType>()
                .write_batch(all, known, None),
            Values::Whole(all) => writer.typed::<Int64Type>().write_batch(all, known, None),
            Values::Flags(all) => writer.typed::<BoolType>().write_batch(all, known, None),
            Values::Numbers(all) => writer.typed::<DoubleType>().write_batch(all, known, None),
        }
    }
}

/// Appends a value if it is known; returns whether it is.
fn push<T>(all: &mut Vec<T>, value: Option<T>) -> bool {
    let known = value.is_some();
    all.extend(value);
    known
}
