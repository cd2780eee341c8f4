//! The service.

use std::sync::Arc;

use bytes::Bytes;
use gabion::{Db, Keyspace, Slice, Transaction, TransactionOptions};
use opendal_core::raw::{
    OpCopy, OpCreateDir, OpDelete, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite,
    RpCreateDir, RpPresign, RpRead, RpRename, RpStat, Service, ServiceInfo, build_abs_path, oio,
};
use opendal_core::{
    Buffer, BytesRange, Capability, Error, ErrorKind, Metadata, MetadataBuilder, OperationContext,
    Result,
};

use crate::lister::GabionLister;
use crate::{GABION_SCHEME, failed};

/// The longest value.
const FILE_BYTES_MAX: usize = 1 << 30;

/// A rename holds the content as what it has read and as what it writes.
const RENAME_BYTES_MAX: u64 = 3 << 30;

/// A keyspace whose keys are the paths of files.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    db: Db,
    pub(crate) keyspace: Keyspace,
    /// What paths begin with: `/`, or a path between slashes.
    pub(crate) root: Arc<str>,
}

impl Files {
    /// The key of a path.
    pub(crate) fn key(&self, path: &str) -> String {
        build_abs_path(&self.root, path)
    }

    pub(crate) fn snapshot(&self) -> gabion::Snapshot {
        self.db.snapshot()
    }

    fn get(&self, path: &str) -> Result<Slice> {
        let found = self.keyspace.get(self.key(path)).map_err(failed)?;
        found.ok_or_else(not_found)
    }
}

fn not_found() -> Error {
    Error::new(ErrorKind::NotFound, "the path is not there")
}

fn exists_already() -> Error {
    Error::new(ErrorKind::ConditionNotMatch, "the path is there already")
}

fn unsupported<T>() -> Result<T> {
    let error = Error::new(ErrorKind::Unsupported, "the service has no such operation");
    Err(error)
}

pub(crate) fn file_metadata(bytes: usize) -> Metadata {
    MetadataBuilder::file(bytes as u64).build()
}

#[derive(Debug)]
pub(crate) struct GabionService {
    files: Files,
    info: ServiceInfo,
}

impl GabionService {
    pub(crate) fn new(db: Db, keyspace: Keyspace, root: String) -> GabionService {
        let info = ServiceInfo::new(GABION_SCHEME, &root, keyspace.name());
        let root = root.into();
        GabionService {
            files: Files { db, keyspace, root },
            info,
        }
    }
}

impl Service for GabionService {
    type Reader = oio::StreamReader<GabionReader>;
    type Writer = GabionWriter;
    type Lister = GabionLister;
    type Deleter = oio::OneShotDeleter<GabionDeleter>;
    type Copier = ();
    type Composer = ();

    fn info(&self) -> ServiceInfo {
        self.info.clone()
    }

    fn capability(&self) -> Capability {
        Capability {
            stat: true,
            read: true,
            read_with_suffix: true,
            write: true,
            write_can_multi: true,
            write_can_empty: true,
            write_with_if_not_exists: true,
            write_total_max_size: Some(FILE_BYTES_MAX),
            create_dir: true,
            delete: true,
            rename: true,
            rename_with_if_not_exists: true,
            list: true,
            list_with_start_after: true,
            list_with_recursive: true,
            ..Capability::default()
        }
    }

    async fn create_dir(
        &self,
        _: &OperationContext,
        path: &str,
        _: OpCreateDir,
    ) -> Result<RpCreateDir> {
        // The root is there in any case.
        if path != "/" {
            let created = self.files.keyspace.put(self.files.key(path), "");
            created.map_err(failed)?;
        }
        Ok(RpCreateDir::default())
    }

    async fn stat(&self, _: &OperationContext, path: &str, _: OpStat) -> Result<RpStat> {
        let metadata = match path.ends_with('/') {
            false => file_metadata(self.files.get(path)?.len()),
            true => {
                // A directory is there with what is in it, or by itself.
                let mut within = self.files.keyspace.prefix(self.files.key(path));
                let first = within.next().transpose().map_err(failed)?;
                if first.is_none() && path != "/" {
                    return Err(not_found());
                }
                MetadataBuilder::dir().build()
            }
        };
        Ok(RpStat::new(metadata))
    }

    fn read(&self, _: &OperationContext, path: &str, _: OpRead) -> Result<Self::Reader> {
        Ok(oio::StreamReader::new(GabionReader {
            files: self.files.clone(),
            path: path.to_owned(),
        }))
    }

    fn write(&self, _: &OperationContext, path: &str, args: OpWrite) -> Result<GabionWriter> {
        Ok(GabionWriter {
            key: self.files.key(path),
            files: self.files.clone(),
            is_new: args.if_not_exists(),
            content: oio::QueueBuf::default(),
        })
    }

    fn delete(&self, _: &OperationContext) -> Result<Self::Deleter> {
        let files = self.files.clone();
        Ok(oio::OneShotDeleter::new(GabionDeleter { files }))
    }

    fn list(&self, _: &OperationContext, path: &str, args: OpList) -> Result<GabionLister> {
        let (start_after, is_recursive) = (args.start_after(), args.recursive());
        Ok(GabionLister::new(
            self.files.clone(),
            path,
            start_after,
            is_recursive,
        ))
    }

    fn copy(&self, _: &OperationContext, _: &str, _: &str, _: OpCopy) -> Result<()> {
        unsupported()
    }

    async fn rename(
        &self,
        _: &OperationContext,
        from: &str,
        to: &str,
        args: OpRename,
    ) -> Result<RpRename> {
        let keyspace = &self.files.keyspace;
        let (from, to) = (self.files.key(from), self.files.key(to));
        let options = TransactionOptions::default().bytes_max(RENAME_BYTES_MAX);
        let rename = |transaction: &mut Transaction| -> gabion::Result<Result<RpRename>> {
            let Some(content) = transaction.get(keyspace, &from)? else {
                return Ok(Err(not_found()));
            };
            if args.if_not_exists() && transaction.contains(keyspace, &to)? {
                return Ok(Err(exists_already()));
            }
            transaction.delete(keyspace, &from)?;
            transaction.put(keyspace, &to, content)?;
            Ok(Ok(RpRename::new()))
        };
        let renamed = self.files.db.transact_with(options, rename);
        renamed.map_err(failed)?
    }

    async fn presign(&self, _: &OperationContext, _: &str, _: OpPresign) -> Result<RpPresign> {
        unsupported()
    }
}

/// Reads ranges of a file.
pub(crate) struct GabionReader {
    files: Files,
    path: String,
}

impl oio::StreamRead for GabionReader {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        let content = self.files.get(&self.path)?;
        let metadata = file_metadata(content.len());
        let range = range.to_content_range(content.len())?;
        let part = Buffer::from(Bytes::from_owner(content)).slice(range);
        let stream: Box<dyn oio::ReadStreamDyn> = Box::new(part);
        Ok((RpRead::new(metadata), stream))
    }
}

/// Gathers the content of a file until it is closed.
pub(crate) struct GabionWriter {
    files: Files,
    key: String,
    /// Whether the file must not be there.
    is_new: bool,
    content: oio::QueueBuf,
}

impl oio::Write for GabionWriter {
    async fn write(&mut self, part: Buffer) -> Result<()> {
        self.content.push(part);
        Ok(())
    }

    async fn close(&mut self) -> Result<Metadata> {
        let content = std::mem::take(&mut self.content).collect().to_bytes();
        let keyspace = &self.files.keyspace;
        if self.is_new {
            let put = keyspace.compare_and_swap(&self.key, None, Some(&content[..]));
            if !put.map_err(failed)? {
                return Err(exists_already());
            }
        } else {
            keyspace.put(&self.key, &content).map_err(failed)?;
        }
        Ok(file_metadata(content.len()))
    }

    async fn abort(&mut self) -> Result<()> {
        self.content = oio::QueueBuf::default();
        Ok(())
    }
}

/// Deletes files, and directories that are there by themselves.
pub(crate) struct GabionDeleter {
    files: Files,
}

impl oio::OneShotDelete for GabionDeleter {
    async fn delete_once(&self, path: String, _: OpDelete) -> Result<()> {
        let deleted = self.files.keyspace.delete(self.files.key(&path));
        deleted.map_err(failed)
    }
}
