package hub

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
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
	spec, err := fromURL(spec)
	if err != nil {
		return nil, err
	}
	spec, err = objectstore.LocalModel(ctx, spec, s3, log)
	if err != nil {
		return nil, err
	}
	found, err := Resolve(ctx, spec, Options{Log: log})
	if err != nil {
		return nil, err
	}
	if opt.Name == "" {
		opt.Name = found.Name
	}
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
	dir, name, err := findConfig(ctx, spec, s3, log)
	if err != nil {
		return nil, err
	}
	m, err := model.OpenShapes(dir, device)
	if err != nil {
		return nil, err
	}
	if name != "" {
		m.Name = name
	}
	return m, nil
}

// OpenCached is OpenShapes of what is on this machine, with the tokenizer where that is: nothing is fetched. lack
// says what Open would fetch, "" for nothing; without a config.json the model is nil.
func OpenCached(spec, device string) (m *model.Model, lack string, err error) {
	if objectstore.IsURL(spec) {
		return nil, "the model", nil
	}
	dir, name := "", ""
	if spec != "" {
		if spec, err = fromURL(spec); err != nil {
			return nil, "", err
		}
		if isFolder(spec) {
			found, err := localModel(expandHome(spec))
			if err != nil {
				return nil, "", err
			}
			dir, name = found.Path, found.Name
		} else {
			f, err := newFetcher(spec, Options{})
			if err != nil {
				return nil, "", fmt.Errorf("model %s: %w", spec, err)
			}
			found, err := f.cache.find()
			if err != nil {
				return nil, "", fmt.Errorf("model %s: %w", f.repo, err)
			}
			if found.commit == "" {
				return nil, "all of it", nil
			}
			lack = shortList(slices.Concat(found.missing, found.unknown))
			if slices.Contains(found.missing, configFile) || f.repo.file != "" && lack != "" {
				return nil, lack, nil
			}
			in := f.repo.in(found.dir)
			dir, name = in.Path, in.Name
		}
	}
	if m, err = model.OpenShapes(dir, device); err != nil {
		return nil, "", err
	}
	if name != "" {
		m.Name = name
	}
	m.ReadTokenizer()
	return m, lack, nil
}

// findConfig returns the folder that config.json lies in, or the GGUF file, and the model's name
// where it is not that of the folder or file.
func findConfig(ctx context.Context, spec string, s3 objectstore.Settings, log io.Writer) (dir, name string, err error) {
	if objectstore.IsURL(spec) {
		spec = strings.TrimSuffix(spec, "/")
		if strings.HasSuffix(spec, ".gguf") {
			file, err := objectstore.LocalModel(ctx, spec, s3, log)
			return file, "", err
		}
		file, err := objectstore.LocalFile(ctx, spec+"/"+configFile, s3, log)
		if err != nil {
			return "", "", fmt.Errorf("model %s: %w", spec, err)
		}
		return filepath.Dir(file), path.Base(spec), nil
	}
	if spec, err = fromURL(spec); err != nil {
		return "", "", err
	}
	if spec == "" {
		return "", "", nil
	}
	if isFolder(spec) {
		found, err := localModel(expandHome(spec))
		return found.Path, found.Name, err
	}
	f, err := newFetcher(spec, Options{Log: log})
	if err != nil {
		return "", "", fmt.Errorf("model %s: %w", spec, err)
	}
	if f.repo.file != "" { // what describes the model is in it
		found, err := f.find(ctx)
		return found.Path, found.Name, err
	}
	if dir, err = f.config(ctx); err != nil {
		return "", "", fmt.Errorf("model %s: %w", f.repo, err)
	}
	return dir, f.repo.id, nil
}

// config returns a folder of the cache that holds the model's config.json. The
// revision gets no name in refs by that: the rest of it may never come.
func (f *fetcher) config(ctx context.Context) (string, error) {
	found, err := f.cache.find()
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
