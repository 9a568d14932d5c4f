package checkpoints

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"glimpse/internal/listing"
	"glimpse/internal/modelfile"
)

// parseIndex returns the weight_map of an index: tensor name to file name. Other
// keys, such as metadata with a total size that writers disagree on, are
// not looked at.
func parseIndex(data []byte) (map[string]string, error) {
	if err := modelfile.Foreign(data); err != nil {
		return nil, Corruptf("%v", err)
	}
	data = modelfile.TrimBOM(data)
	if !utf8.Valid(data) {
		return nil, Corruptf("not valid UTF-8")
	}
	var index map[string]json.RawMessage
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, Corruptf("not a JSON object: %v", err)
	}
	if index == nil {
		return nil, Corruptf("got null, want an object")
	}
	if err := checkUniqueKeys(data); err != nil {
		return nil, err
	}
	var weightMap map[string]*string // a pointer, because null would pass for ""
	if err := json.Unmarshal(index["weight_map"], &weightMap); err != nil || len(weightMap) == 0 {
		return nil, Corruptf("weight_map: want an object that maps at least one tensor name to a file name")
	}
	files := make(map[string]string, len(weightMap))
	for _, tensor := range slices.Sorted(maps.Keys(weightMap)) {
		file := weightMap[tensor]
		if file == nil || !plainFileName(*file) {
			got := "null"
			if file != nil {
				got = fmt.Sprintf("%.200q", *file)
			}
			return nil, Corruptf("weight_map: tensor %.200q: got file %s, want the name of a .safetensors file in the same folder", tensor, got)
		}
		files[tensor] = *file
	}
	return files, nil
}

// plainFileName accepts names that stay in the folder on every system, and that an
// error may show as they are.
func plainFileName(name string) bool {
	return strings.HasSuffix(name, ".safetensors") && len(name) <= 255 && fs.ValidPath(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(`/\:`, r) })
}

// openShards opens every file of the map and checks that files and map agree on
// every tensor.
func (w *Weights) openShards(weightMap map[string]string, open func(string) (*Safetensors, error)) error {
	files := slices.Compact(slices.Sorted(maps.Values(weightMap)))
	byName := make(map[string]TensorFile, len(files))
	var unreadable []error
	for _, file := range files {
		s, err := open(file)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		w.shards = append(w.shards, s)
		byName[file] = s
	}
	if len(unreadable) > 0 {
		return fmt.Errorf("%d of the %d files in %s: %w", len(unreadable), len(files), indexFile, listing.JoinErrors(unreadable))
	}
	var missing, surplus []string
	for tensor, file := range weightMap {
		s := byName[file]
		if _, ok := s.Info(tensor); !ok {
			missing = append(missing, file+": "+tensor)
			continue
		}
		w.owner[tensor] = s
	}
	for file, s := range byName {
		for _, tensor := range s.Names() {
			if weightMap[tensor] != file {
				surplus = append(surplus, file+": "+tensor)
			}
		}
	}
	var p problems
	p.addNames(fmt.Sprintf("%d tensors of the index are not in their file:", len(missing)), missing)
	p.addNames(fmt.Sprintf("%d tensors are not in the index under their file:", len(surplus)), surplus)
	return p.in(w.name + ": " + indexFile + ": ")
}
