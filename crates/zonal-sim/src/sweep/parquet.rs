//! A sweep's rows as a Parquet file, for tools that read millions of them.
//!
//! A column is of whole numbers, of numbers or of words, whichever holds all of its values; what
//! is empty is null. All rows are one row group. The same rows give the same bytes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::error::{Result, SimError};

/// The values of a column, and for each row 1, or 0 where it is empty.
struct Column {
    values: Values,
    levels: Vec<i16>,
}

enum Values {
    Whole(Vec<i64>),
    Numbers(Vec<f64>),
    Words(Vec<ByteArray>),
}

impl Column {
    fn of(rows: &[Vec<String>], at: usize) -> Self {
        let all = || rows.iter().map(|row| row[at].as_str()).filter(|text| !text.is_empty());
        let levels = rows.iter().map(|row| i16::from(!row[at].is_empty())).collect();
        let whole: Option<Vec<i64>> = all().map(|text| text.parse().ok()).collect();
        let numbers = || all().map(|text| text.parse().ok()).collect::<Option<Vec<f64>>>();
        let values = match (whole, numbers()) {
            (Some(whole), _) => Values::Whole(whole),
            (None, Some(numbers)) => Values::Numbers(numbers),
            (None, None) => Values::Words(all().map(ByteArray::from).collect()),
        };
        Self { values, levels }
    }

    fn schema(&self, name: &str) -> std::result::Result<Type, ParquetError> {
        let (physical, converted) = match self.values {
            Values::Whole(_) => (Physical::INT64, ConvertedType::NONE),
            Values::Numbers(_) => (Physical::DOUBLE, ConvertedType::NONE),
            Values::Words(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted)
            .build()
    }
}

/// Writes rows, the first of which names the columns, to a new file.
pub(super) fn write(rows: &[Vec<String>], out: &Path, file: File) -> Result<()> {
    written(rows, file).map_err(|error| SimError::sweep(out, 0, &error.to_string()))
}

fn written(rows: &[Vec<String>], file: File) -> std::result::Result<(), ParquetError> {
    let (names, rows) = rows.split_first().expect("there are columns");
    let columns: Vec<Column> = (0..names.len()).map(|at| Column::of(rows, at)).collect();
    let fields = names.iter().zip(&columns).map(|(name, column)| column.schema(name).map(Arc::new));
    let fields = fields.collect::<std::result::Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("sweep").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_created_by("zonal".into()).build());
    let mut writer = SerializedFileWriter::new(file, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for Column { values, levels } in &columns {
        let column = group.next_column()?.expect("as many as in the schema");
        match values {
            Values::Whole(values) => put::<Int64Type>(column, values, levels)?,
            Values::Numbers(values) => put::<DoubleType>(column, values, levels)?,
            Values::Words(values) => put::<ByteArrayType>(column, values, levels)?,
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn put<T: DataType>(
    mut column: SerializedColumnWriter<'_>,
    values: &[T::T],
    levels: &[i16],
) -> std::result::Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    column.close()
}
