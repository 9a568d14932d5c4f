package hub

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/gguf"
	"glimpse/internal/listing"
)

// The files that a model is read from, besides its weights.
var (
	required = []string{configFile}
	// expected are those that most models have; optional ones, few.
	expected = []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json"}
	optional = []string{"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json", "glimpse_policies.json"}
)

const configFile = "config.json"

// Names of the weights; as in transformers, the single file goes before the index.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

const maxShards = 10_000

// needed chooses among the files of the commit; absent are the other files
// that the commit does not have. The index of sharded weights is fetched on the
// way.
func (f *fetcher) needed(ctx context.Context, info repoInfo) (names, absent []string, err error) {
	have := make(map[string]bool, len(info.Siblings))
	for _, s := range info.Siblings {
		have[s.Name] = true
	}
	if f.repo.file != "" {
		files := f.repo.ggufFiles()
		for _, name := range files {
			if !have[name] {
				return nil, nil, fmt.Errorf("commit %s has no %s; its GGUF files: %s", info.SHA, name, f.ggufSpecs(have))
			}
		}
		return files, nil, nil
	}
	if specs := f.ggufSpecs(have); specs != "" && !have[singleFile] && !have[indexFile] {
		return nil, nil, fmt.Errorf("the hub has GGUF files of it and no safetensors weights, want one of: %s", specs)
	}
	for _, name := range slices.Concat(required, expected, optional) {
		if have[name] {
			names = append(names, name)
		} else {
			absent = append(absent, name)
		}
	}
	for _, name := range required {
		if !have[name] {
			return nil, nil, fmt.Errorf("commit %s has no %s: it is no model of transformers", info.SHA, name)
		}
	}
	if have[singleFile] {
		return append(names, singleFile), absent, nil
	}
	if !have[indexFile] {
		return nil, nil, fmt.Errorf("the hub has no safetensors weights of it (neither %s nor %s)%s", singleFile, indexFile, otherWeights(have))
	}
	if err := f.fetchAll(ctx, info.SHA, []string{indexFile}, io.Discard); err != nil {
		return nil, nil, err
	}
	// Names that could lead out of the folder are refused here, before a file of such a name is asked for.
	shards, err := checkpoints.WeightFiles(os.DirFS(f.cache.snapshot(info.SHA)))
	if err != nil {
		return nil, nil, err
	}
	if len(shards) > maxShards {
		return nil, nil, fmt.Errorf("%s: got %d files, want at most %d", indexFile, len(shards), maxShards)
	}
	var lost []string
	for _, name := range shards {
		if !have[name] {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		return nil, nil, fmt.Errorf("%s names files that the hub does not have: %s", indexFile, listing.Plain(lost))
	}
	return append(append(names, indexFile), shards...), absent, nil
}

// otherWeights hints at weights in other formats.
func otherWeights(have map[string]bool) string {
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json"} {
		if have[name] {
			return "; " + name + " must first be converted to safetensors"
		}
	}
	return ""
}

// ggufSpecs lists the models in GGUF files as users name them.
func (f *fetcher) ggufSpecs(have map[string]bool) string {
	prefix := f.repo.id
	if f.repo.revision != defaultRevision {
		prefix += "@" + f.repo.revision
	}
	var specs []string
	for _, name := range ggufModels(slices.Sorted(maps.Keys(have))) {
		specs = append(specs, prefix+":"+name)
	}
	return listing.Plain(specs)
}

// ggufModels are the GGUF files among the names, of a split model the first. Encoders of images,
// which lie beside models of text and images, are none.
func ggufModels(names []string) (models []string) {
	for _, name := range names {
		if validGGUF(name) && gguf.Parts(name)[0] == name && !strings.HasPrefix(path.Base(name), "mmproj") {
			models = append(models, name)
		}
	}
	return models
}
