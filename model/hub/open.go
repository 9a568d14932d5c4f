package hub

import (
	"context"
	"io"

	"glimpse/model"
)

// Open opens the model that spec names, as Resolve finds it; log takes the
// progress of a download. A model of the hub keeps its name, org/name, in reports
// and in adapters made for it. The caller closes the model.
func Open(ctx context.Context, spec string, log io.Writer, opt model.Options) (*model.Model, error) {
	found, err := Resolve(ctx, spec, Options{Log: log})
	if err != nil {
		return nil, err
	}
	if opt.Name == "" {
		opt.Name = found.Name
	}
	return model.Open(found.Dir, opt)
}
