// Package builtin holds the reference model: a tiny Llama-architecture model,
// trained on synthetic long-context tasks, that ships inside the binaries so
// that everything works on a fresh machine with no download. The folder is an
// ordinary Hugging Face folder, made by lab/reference/model, and can be replaced
// by another one. Two things in it are made afterwards: glimpse_policies.json, the options
// of policies that suit the model, by lab/reference/tune_policies.sh, and duoattention, its
// retrieval heads, by "evict patterns --sink 4 --recent 24".
package builtin

import (
	"embed"
	"io/fs"
)

//go:embed reference
var files embed.FS

// Name is what the reference model is called in reports and adapters.
const Name = "glimpse-reference"

// FS is the model folder.
func FS() fs.FS {
	sub, err := fs.Sub(files, "reference")
	if err != nil {
		panic(err) // the folder is embedded under this name
	}
	return sub
}

//go:embed draft
var draft embed.FS

// DraftName is what the draft companion is called in reports.
const DraftName = Name + "-draft"

// Draft is the folder of a model of a quarter of the size with the same vocabulary, which writes
// drafts for the reference model.
func Draft() fs.FS {
	sub, err := fs.Sub(draft, "draft")
	if err != nil {
		panic(err) // the folder is embedded under this name
	}
	return sub
}
