package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/internal/listing"
	"glimpse/internal/modelfile"
	"glimpse/model/gguf"
)

// Places where people copy the name of a model from.
var hubHosts = []string{"huggingface.co", "www.huggingface.co", "hf.co"}

// fromURL makes org/name[@revision][:FILE.gguf] of the address of a model's page or of one of its files at
// the hub. Other names stay as they are.
func fromURL(spec string) (string, error) {
	address := spec
	if slices.ContainsFunc(hubHosts, func(host string) bool { return strings.HasPrefix(spec, host+"/") }) {
		address = "https://" + spec
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !slices.Contains(hubHosts, u.Host) {
		return spec, nil
	}
	var parts []string
	for part := range strings.SplitSeq(strings.Trim(u.EscapedPath(), "/"), "/") {
		if part, err = url.PathUnescape(part); err != nil {
			return "", fmt.Errorf("model %s: %w", spec, err)
		}
		parts = append(parts, part)
	}
	switch {
	case parts[0] == "datasets" || parts[0] == "spaces" || len(parts) < 2:
		return "", fmt.Errorf("model %s: not the page of a model, want https://%s/org/name", spec, hubHosts[0])
	case len(parts) == 2:
		return parts[0] + "/" + parts[1], nil
	case len(parts) > 3 && slices.Contains([]string{"tree", "blob", "resolve", "commit"}, parts[2]):
		revision, rest := parts[3], parts[4:]
		if revision == "refs" && len(parts) >= 6 { // refs/pr/1
			revision, rest = strings.Join(parts[3:6], "/"), parts[6:]
		}
		if parts[2] == "tree" && len(rest) > 0 {
			return "", fmt.Errorf("model %s: a folder within a model, want https://%s/org/name/tree/REVISION", spec, hubHosts[0])
		}
		spec := parts[0] + "/" + parts[1] + "@" + revision
		if file := strings.Join(rest, "/"); strings.HasSuffix(file, ".gguf") {
			spec += ":" + file
		}
		return spec, nil
	}
	return "", fmt.Errorf("model %s: not the page of a model, want https://%s/org/name or https://%[2]s/org/name/tree/REVISION", spec, hubHosts[0])
}

// inCache is what huggingface_hub calls the folder of a model in its cache.
const inCache = "models--"

// localModel finds the folder or GGUF file that a path means: the folder that a model's file lies
// in, the snapshot of main in a folder of the hub's cache, the only model within. What
// cannot be read is an error that says what to do; whatever else is wrong, model.Open says.
func localModel(path string) (Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Model{Path: path}, nil
	}
	if !info.IsDir() {
		if name := filepath.Base(path); name == configFile || strings.HasSuffix(name, ".safetensors") || name == indexFile {
			return localModel(filepath.Dir(path))
		}
		if gguf.Is(path) {
			return Model{Path: path}, nil
		}
		return Model{Path: path}, foreignFile(path, info)
	}
	there := func(names ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{path}, names...)...))
		return err == nil
	}
	switch {
	case there(configFile):
		return Model{Path: path}, nil
	case there("snapshots"):
		return cachedSnapshot(path)
	case there("glimpse.json") || there("adapter_config.json"):
		return Model{}, adapterError(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return Model{Path: path}, nil
	}
	var models, names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if !strings.HasPrefix(e.Name(), ".") && there(e.Name(), configFile) {
			models = append(models, e.Name())
		}
	}
	models = append(models, ggufModels(names)...)
	switch len(models) {
	case 0:
		return Model{Path: path}, nil
	case 1:
		return Model{Path: filepath.Join(path, models[0])}, nil
	}
	return Model{}, fmt.Errorf("model %s: has no %s, but %d models within: %s; want one of them", path, configFile, len(models), listing.Plain(models))
}

// cachedSnapshot is the snapshot of the revision main, or the only one.
func cachedSnapshot(path string) (Model, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Model{}, err
	}
	id := ""
	if name, ok := strings.CutPrefix(filepath.Base(abs), inCache); ok {
		id = strings.Replace(name, "--", "/", 1)
	}
	raw, err := readBounded(filepath.Join(path, "refs", defaultRevision), 1<<10)
	commit := strings.TrimSpace(string(raw))
	if err != nil || !commitHash.MatchString(commit) {
		entries, _ := os.ReadDir(filepath.Join(path, "snapshots"))
		if len(entries) != 1 {
			return Model{}, fmt.Errorf("model %s: %d snapshots and no refs/%s, want the folder of one snapshot", path, len(entries), defaultRevision)
		}
		commit = entries[0].Name()
	}
	return Model{Path: filepath.Join(path, "snapshots", commit), Name: id}, nil
}

// adapterError says which model an adapter is for.
func adapterError(path string) error {
	var peft struct {
		Base string `json:"base_model_name_or_path"`
	}
	var own struct {
		Base struct{ Name string } `json:"base_model"`
	}
	read := func(name string, v any) bool {
		raw, err := modelfile.ReadJSON(os.DirFS(path), name, 64<<20)
		return err == nil && json.Unmarshal(raw, v) == nil
	}
	if read("glimpse.json", &own) {
		return fmt.Errorf("model %s: no %s; it is an adapter for the model %.200q, want a Hugging Face model folder: --model BASE --adapter %[1]s", path, configFile, own.Base.Name)
	}
	read("adapter_config.json", &peft)
	return fmt.Errorf("model %s: no %s; it is a PEFT adapter for the model %.200q, want the two merged: PEFT's merge_and_unload().save_pretrained(\"OUT\")", path, configFile, peft.Base)
}

// foreignFile is an error where a file holds a model in another format.
func foreignFile(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // model.Open says
	}
	defer f.Close()
	head := make([]byte, 4)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil
	}
	pickle := bytes.HasPrefix(head, []byte("PK\x03\x04")) || head[0] == 0x80
	if ext := strings.ToLower(filepath.Ext(path)); pickle && slices.Contains([]string{".bin", ".pt", ".pth", ".ckpt", ".pkl"}, ext) {
		return fmt.Errorf("model %s: weights as a PyTorch pickle, want safetensors: AutoModelForCausalLM.from_pretrained(\"DIR\").save_pretrained(\"OUT\") converts them", path)
	}
	return nil
}
