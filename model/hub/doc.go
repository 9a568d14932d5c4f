// Package hub finds the model that a user named: a folder on this machine, or a
// model of the Hugging Face hub, which is downloaded once and then read from the
// cache.
//
// [Open] takes what follows --model and opens the model; [Resolve] only finds its
// folder:
//
//	m, err := hub.Open(ctx, "Qwen/Qwen3-0.6B", os.Stderr, model.Options{})
//
// A folder is recognised by being there, or by a name that starts with /, ./, ../
// or ~. Anything else must read org/name, or org/name@revision with a branch, a
// tag or a commit; the revision is main unless said otherwise. Behind it :FILE.gguf
// names a GGUF file of the model.
//
// # The cache
//
// The cache is the one of Python's huggingface_hub, so that a model that either
// has downloaded is there for the other:
//
//	models--org--name/
//	  refs/main              the commit that the branch was at
//	  snapshots/COMMIT/…     the files, as relative links to ../../blobs/ETAG
//	  blobs/ETAG             the contents; ETAG.incomplete while they arrive
//	  .no_exist/COMMIT/…     empty markers of files that the commit does not have
//	.locks/models--org--name/ETAG.lock
//
// A revision that the cache holds whole is used without asking the hub: a run
// gives today what it gave yesterday, with or without a network. To follow a
// branch that has moved, delete its file in refs, or name the commit.
//
// # Downloads
//
// Of the hub's files only those that a model is read from are fetched: the
// configuration, the tokenizer with its chat template, and the safetensors weights,
// never the same weights in other formats; or the one GGUF file that is named, with the
// others of a split model. The ETag of a file is the hash of its
// content (SHA-256 of large files, Git's blob hash of small ones), and a file gets
// its name in blobs only after size and hash were found right. What arrives goes
// to ETAG.incomplete; a cut connection is resumed there, by this process or by a
// later one. A lock per file, the same that huggingface_hub takes, keeps processes
// from fetching a file twice; on a file system without locks nothing is fetched, and
// what is in the cache is read as ever. A name in refs is written last, so it never names a
// snapshot that this package has left unfinished.
//
// The token goes to the hub and to no other host: large files come by a redirect
// to a storage host, which needs none.
//
// # Environment
//
// HF_HOME and HF_HUB_CACHE place the cache, HF_ENDPOINT names another hub, HF_TOKEN
// (or the file that "hf auth login" writes) is sent to it, and HF_HUB_OFFLINE=1
// keeps to the cache.
package hub
