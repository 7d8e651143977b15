//! Writes rows to a Parquet file, one row group at a time. Each column is typed and optional.

use crate::columns::{ColumnKind, Value};
use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::Arc;

/// Number of calls per row group, which is held in memory: about 60 MB.
const GROUP: usize = 50_000;

pub struct Table<W: Write + Send> {
    file: SerializedFileWriter<W>,
    fields: Vec<Field>,
    columns: Vec<ColumnValues>,
    rows: usize,
}

pub type Field = (&'static str, ColumnKind);

struct ColumnValues {
    known: Vec<i16>,
    values: Values,
}

enum Values {
    Texts(Vec<ByteArray>),
    Whole(Vec<i64>),
    Flags(Vec<bool>),
    Numbers(Vec<f64>),
}

/// The I/O error in a Parquet error, so that a closed pipe is recognized.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        error => io::Error::other(error),
    }
}

fn fresh(fields: &[Field]) -> Vec<ColumnValues> {
    let column = |(_, kind): &Field| ColumnValues {
        known: Vec::new(),
        values: match kind {
            ColumnKind::Text => Values::Texts(Vec::new()),
            ColumnKind::Instant | ColumnKind::Count => Values::Whole(Vec::new()),
            ColumnKind::Flag => Values::Flags(Vec::new()),
            ColumnKind::Number => Values::Numbers(Vec::new()),
        },
    };
    fields.iter().map(column).collect()
}

fn message(fields: &[Field]) -> String {
    let field = |(name, kind): &Field| match kind {
        ColumnKind::Text => format!("optional binary {name} (UTF8);"),
        ColumnKind::Instant => format!("optional int64 {name} (TIMESTAMP(MILLIS,true));"),
        ColumnKind::Count => format!("optional int64 {name};"),
        ColumnKind::Flag => format!("optional boolean {name};"),
        ColumnKind::Number => format!("optional double {name};"),
    };
    let fields: Vec<_> = fields.iter().map(field).collect();
    format!("message call {{ {} }}", fields.join(" "))
}

impl<W: Write + Send> Table<W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn begin(file: W, fields: Vec<Field>) -> io::Result<Table<W>> {
        let schema = parse_message_type(&message(&fields)).map_err(failed)?;
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(concat!("tokengauge ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        Ok(Table {
            file: file.map_err(failed)?,
            columns: fresh(&fields),
            fields,
            rows: 0,
        })
    }

    /// Adds a row with a value for each column.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn row(&mut self, row: impl IntoIterator<Item = Value>) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.add(value);
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.group()?;
        }
        Ok(())
    }

    fn group(&mut self) -> io::Result<()> {
        let columns = std::mem::replace(&mut self.columns, fresh(&self.fields));
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

    /// Ends the file and returns the writer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.group()?;
        }
        self.file.into_inner().map_err(failed)
    }
}

/// The known values of a text column in a file; empty if the file lacks the column.
///
/// # Errors
/// Returns an error if the file is not a Parquet file.
pub fn texts(file: Bytes, column: &str) -> io::Result<Vec<String>> {
    let file = SerializedFileReader::new(file).map_err(failed)?;
    let schema = file.metadata().file_metadata().schema_descr();
    let names = schema.columns().iter();
    let Some(index) = names
        .map(|column| column.name())
        .position(|name| name == column)
    else {
        return Ok(Vec::new());
    };
    let mut texts = Vec::new();
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(failed)?;
        let rows = group.metadata().num_rows().max(0) as usize;
        let ColumnReader::ByteArrayColumnReader(mut reader) =
            group.get_column_reader(index).map_err(failed)?
        else {
            return Err(io::Error::other(format!(
                "column {column} is not a text column"
            )));
        };
        let (mut known, mut values) = (Vec::new(), Vec::new());
        reader
            .read_records(rows, Some(&mut known), None, &mut values)
            .map_err(failed)?;
        let values = values.iter();
        texts.extend(values.map(|text| String::from_utf8_lossy(text.data()).into_owned()));
    }
    Ok(texts)
}

impl ColumnValues {
    /// Adds a value. A value of another type counts as unknown.
    fn add(&mut self, value: Value) {
        let known = match (&mut self.values, value) {
            (Values::Texts(all), Value::Text(text)) => {
                all.push(ByteArray::from(text.into_string().into_bytes()));
                true
            }
            (Values::Whole(all), Value::Whole(number)) => {
                all.push(number);
                true
            }
            (Values::Flags(all), Value::Flag(flag)) => {
                all.push(flag);
                true
            }
            (Values::Numbers(all), Value::Number(number)) => {
                all.push(number);
                true
            }
            _ => false,
        };
        self.known.push(i16::from(known));
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
