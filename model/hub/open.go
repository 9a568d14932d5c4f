package hub

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/model"
)

// Open opens the model that spec names: one of an object store (s3://BUCKET/NAME,
// reached by s3 and copied into its cache), or what Resolve finds. log takes the
// progress of a download. A model of the hub keeps its name, org/name, in reports
// and in adapters made for it. The caller closes the model.
func Open(ctx context.Context, spec string, s3 objectstore.Settings, log io.Writer, opt model.Options) (*model.Model, error) {
	if log != nil {
		log = progress.NewOutput(log)
	}
	spec, err := expand(spec)
	if err != nil {
		return nil, err
	}
	spec, err = objectstore.LocalModel(ctx, spec, s3, log)
	if err != nil {
		return nil, err
	}
	found, err := Resolve(ctx, spec, log)
	if err != nil {
		return nil, err
	}
	opt.Name = cmp.Or(opt.Name, found.Name)
	m, err := model.Open(found.Path, opt)
	if err != nil {
		return nil, err
	}
	if log != nil {
		if m.DeviceChoice != "" {
			fmt.Fprintln(log, m.DeviceChoice)
		}
		notes := m.Notes
		if m.Tokenizer != nil {
			notes = slices.Concat(notes, m.Tokenizer.Notes())
		}
		for _, note := range notes {
			fmt.Fprintf(log, "model %s: %s\n", m.Name, note)
		}
	}
	return m, nil
}

// OpenShapes is model.OpenShapes for what Open takes. Of a model elsewhere only config.json is
// fetched, but a GGUF file whole.
func OpenShapes(ctx context.Context, spec string, s3 objectstore.Settings, log io.Writer, device string) (*model.Model, error) {
	found, err := findConfig(ctx, spec, s3, log)
	if err != nil {
		return nil, err
	}
	return found.shapes(device)
}

// shapes is model.OpenShapes with the model's name.
func (found Model) shapes(device string) (*model.Model, error) {
	m, err := model.OpenShapes(found.Path, device)
	if err == nil && found.Name != "" {
		m.Name = found.Name
	}
	return m, err
}

// OpenCached is OpenShapes of the files on this machine, with the tokenizer where that is there: nothing is fetched. lack
// says what Open would fetch, "" for nothing; without a config.json the model is nil.
func OpenCached(spec, device string) (m *model.Model, lack string, err error) {
	if spec, err = expand(spec); err != nil {
		return nil, "", err
	}
	if objectstore.IsURL(spec) {
		return nil, "the model", nil
	}
	found, f, err := locate(spec, nil)
	if err != nil {
		return nil, "", err
	}
	if f != nil {
		cached, err := f.cache.findRevision()
		if err != nil {
			return nil, "", fmt.Errorf("model %s: %w", f.repo, err)
		}
		if cached.commit == "" {
			return nil, "all of it", nil
		}
		lack = listing.Plain(slices.Concat(cached.missing, cached.unknown))
		if slices.Contains(cached.missing, configFile) || f.repo.file != "" && lack != "" {
			return nil, lack, nil
		}
		found = f.repo.in(cached.dir)
	}
	if m, err = found.shapes(device); err != nil {
		return nil, "", err
	}
	m.ReadTokenizer()
	return m, lack, nil
}

// findConfig is Resolve for the model's config.json alone, or its GGUF file.
func findConfig(ctx context.Context, spec string, s3 objectstore.Settings, log io.Writer) (Model, error) {
	spec, err := expand(spec)
	if err != nil {
		return Model{}, err
	}
	if objectstore.IsURL(spec) {
		spec = strings.TrimSuffix(spec, "/")
		if strings.HasSuffix(spec, ".gguf") {
			file, err := objectstore.LocalModel(ctx, spec, s3, log)
			return Model{Path: file}, err
		}
		file, err := objectstore.LocalFile(ctx, spec+"/"+configFile, s3, log)
		if err != nil {
			return Model{}, fmt.Errorf("model %s: %w", spec, err)
		}
		return Model{Path: filepath.Dir(file), Name: path.Base(spec)}, nil
	}
	found, f, err := locate(spec, log)
	if err != nil || f == nil {
		return found, err
	}
	if f.repo.file != "" { // what describes the model is in it
		return f.findModel(ctx)
	}
	dir, err := f.config(ctx)
	if err != nil {
		return Model{}, fmt.Errorf("model %s: %w", f.repo, err)
	}
	return f.repo.in(dir), nil
}

// config returns a folder of the cache that holds the model's config.json. The
// revision gets no name in refs by that: the rest of it may never come.
func (f *fetcher) config(ctx context.Context) (string, error) {
	found, err := f.cache.findRevision()
	if err != nil {
		return "", err
	}
	if found.commit != "" && !slices.Contains(found.missing, configFile) {
		return found.dir, nil
	}
	if f.offline {
		found.missing = []string{configFile}
		return "", fmt.Errorf("HF_HUB_OFFLINE is set, and the cache %s lacks %s", f.settings.cache, found.lack())
	}
	info, err := f.info(ctx, f.repo.revision, attempts)
	if err != nil {
		return "", err
	}
	for _, s := range info.Siblings {
		if s.Name == configFile {
			return f.cache.snapshot(info.SHA), f.fetchAll(ctx, info.SHA, []string{configFile}, f.log)
		}
	}
	_, _, err = f.needed(ctx, info) // says what it has
	return "", err
}
