// Package objectstore keeps adapters, run states and models where they are used: in
// an S3 bucket or a local folder.
//
// [Open] takes what a user wrote, "s3://bucket/folder" or a path, and returns the
// [Store] and the folder's key in it:
//
//	store, folder, err := objectstore.Open(ctx, "s3://models/adapters/llama", settings)
//	…
//	created, err := objectstore.Publish(ctx, store, folder, files)
//
// # Writing
//
// An object appears whole or not at all, in both kinds of store. Large ones go to
// S3 as multipart uploads. A part that is cut off, or refused with 503 or SlowDown,
// is sent again, with growing pauses. An upload that ends half done, by a kill or a
// lost network, stays at the server: the next Put of the same content lists its
// parts, compares their SHA-256 and sends only the others. A Put that is cancelled
// or refused removes its upload.
//
// [Publish] writes a folder of several objects so that readers see all of it or
// none: every object is written on the condition that there is none of its name,
// in the same order by every writer, and the one that makes the folder valid comes
// last. A small object that comes first, the claim, decides which of several writers
// wins; the others get [ErrExists] or [ErrUnfinished] and have changed nothing. What
// was published is never replaced.
//
// [Claims] let one of several processes do the work that a folder stands for, and
// others take over from one that has died.
//
// # Reading
//
// [FS] reads a folder as a file system, over ranged requests that continue where a
// connection broke. [Cache] brings large objects to the local disk once, in pieces
// that survive a kill, and keeps them as long as the store has the same version.
// Servers do not notice that a stored object was altered behind their back: what
// the store knows about an object's checksum is compared with what arrived, and an
// adapter carries the SHA-256 of its files besides.
package objectstore
