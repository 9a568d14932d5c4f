package hub

import (
	"context"
	"fmt"
	"io"

	"glimpse/checkpoints/objectstore"
	"glimpse/model"
)

// Open opens the model that spec names: one of an object store (s3://BUCKET/NAME,
// reached by s3 and copied into its cache), or what Resolve finds. log takes the
// progress of a download. A model of the hub keeps its name, org/name, in reports
// and in adapters made for it. The caller closes the model.
func Open(ctx context.Context, spec string, s3 objectstore.Settings, log io.Writer, opt model.Options) (*model.Model, error) {
	spec, err := objectstore.LocalModel(ctx, spec, s3, log)
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
	m, err := model.Open(found.Dir, opt)
	if err == nil && m.DeviceChoice != "" && log != nil {
		fmt.Fprintln(log, m.DeviceChoice)
	}
	return m, err
}
