package gguf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
	container "glimpse/checkpoints/gguf"
	"glimpse/kernels"
)

// Model is a model in a GGUF file.
type Model struct {
	// Folder is what a Hugging Face folder of the model would hold beside the weights. What of the
	// tokenizer cannot be translated is the error of reading tokenizer.json. It stays valid after
	// Close.
	Folder fs.FS
	// Notes say what of the file is odd and was taken all the same, one line each.
	Notes []string

	file    *container.File
	sources map[string]container.Source
}

// Open maps a file and translates what describes the model. Of a split model any of its files
// opens all.
func Open(path string) (*Model, error) {
	file, err := container.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := translate(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return m, nil
}

// Weights returns the model's tensors, by their Hugging Face names. Closing them closes the file.
func (m *Model) Weights() (*checkpoints.Weights, error) { return m.file.Weights(m.sources) }

// Close releases the file.
func (m *Model) Close() error { return m.file.Close() }

// Is tells whether a path is a GGUF file, by its name or by how it begins: Ollama's files have no
// ending.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if strings.HasSuffix(path, ".gguf") {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4)
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == "GGUF"
}

// Name is what a model in a file is called: the file's name without ending, and without the number
// of a split model's.
func Name(path string) string {
	parts := container.Parts(filepath.Base(path))
	return strings.TrimSuffix(strings.TrimSuffix(parts[0], fmt.Sprintf("-00001-of-%05d.gguf", len(parts))), ".gguf")
}

func translate(file *container.File) (*Model, error) {
	name, ok, err := file.String("general.architecture")
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New(`key "general.architecture" is missing`)
	}
	arch, err := architectures.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("key \"general.architecture\": %w", err)
	}
	keys := &metadata{file: file, prefix: name + ".", used: map[string]bool{}}
	c := keys.config(arch)
	if err := keys.done(arch); err != nil {
		return nil, err
	}
	ids, generation := keys.generation()
	maps.Copy(c, ids)
	if keys.err != nil {
		return nil, keys.err
	}
	stored, err := storedType(file)
	if err != nil {
		return nil, err
	}
	c["torch_dtype"] = map[kernels.DType]string{kernels.BF16: "bfloat16", kernels.F16: "float16", kernels.F32: "float32"}[stored]
	files := folder{}
	files.addFile("config.json", c)
	files.addFile("generation_config.json", generation)
	tokenizer, settings, err := keys.tokenizer(name)
	if err != nil {
		files["tokenizer.json"] = entry{err: err}
	} else {
		files.addFile("tokenizer.json", tokenizer)
		files.addFile("tokenizer_config.json", settings)
	}
	return &Model{Folder: files, Notes: append(file.Notes(), keys.notes...), file: file, sources: arch.sources(file, c, stored)}, nil
}

// storedType is the type that most elements of the matrices have once they are widened.
func storedType(file *container.File) (kernels.DType, error) {
	elements := map[kernels.DType]int{}
	for _, t := range file.Tensors() {
		if len(t.Shape) < 2 {
			continue
		}
		stored, err := kernels.ParseDType(t.Format.Name)
		if err != nil {
			stored = kernels.BF16
		}
		elements[stored] += kernels.ShapeLen(t.Shape)
	}
	most := kernels.BF16
	for _, t := range []kernels.DType{kernels.F16, kernels.F32} {
		if elements[t] > elements[most] {
			most = t
		}
	}
	return most, nil
}
