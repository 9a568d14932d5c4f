//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/kernels/fatbin"

	"github.com/klauspost/compress/zstd"
	"gorgonia.org/cu"
)

// The compiled kernels, one fat binary for each source; scripts/kernels.sh makes them.
//
//go:embed kernels.tar.zst
var packedKernels []byte

// kernelsVariable names a folder of fat binaries to use instead of those in the program.
const kernelsVariable = "GLIMPSE_CUDA_KERNELS"

// eachFatBinary calls f for every fat binary: those of the folder GLIMPSE_CUDA_KERNELS
// where it is set, so that they can be compiled anew where the device is.
func eachFatBinary(f func(name string, data []byte) error) error {
	if dir := os.Getenv(kernelsVariable); dir != "" {
		files, err := filepath.Glob(filepath.Join(dir, "*.fatbin"))
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s=%s: no fat binaries", kernelsVariable, dir)
		}
		for _, file := range files {
			data, readErr := os.ReadFile(file)
			if err = errors.Join(err, readErr); err == nil {
				err = f(strings.TrimSuffix(filepath.Base(file), ".fatbin"), data)
			}
		}
		return err
	}
	z, err := zstd.NewReader(bytes.NewReader(packedKernels))
	if err != nil {
		return err
	}
	defer z.Close()
	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive of the kernels: %w", err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("archive of the kernels: %w", err)
		}
		if err := f(strings.TrimSuffix(header.Name, ".fatbin"), data); err != nil {
			return err
		}
	}
}

// imageUse is what the driver runs of a fat binary.
type imageUse struct {
	images []fatbin.Image // without their data
	arch   int            // of the machine code that runs
}

// use asks the driver what it runs: of PTX it reports the architecture that it has
// compiled for.
func use(images []fatbin.Image, f cu.Function) (imageUse, error) {
	arch, err := f.Attribute(cu.BinaryVersion)
	u := imageUse{images: slices.Clone(images), arch: arch}
	for i := range u.images {
		u.images[i].Data = nil
	}
	return u, err
}

// String is the image that runs.
func (u imageUse) String() string {
	var text fatbin.Image
	for _, image := range u.images {
		if image.Kind == fatbin.ELF && image.Arch == u.arch {
			return image.String()
		}
		if image.Kind == fatbin.PTX && image.Arch <= u.arch && image.Arch >= text.Arch {
			text = image
		}
	}
	return fmt.Sprintf("%s, which the driver has compiled for sm_%d", text, u.arch)
}

// describeImages says what runs of all fat binaries.
func (b *cuda) describeImages() string {
	var uses []string
	for _, file := range slices.Sorted(maps.Keys(b.images)) {
		if text := b.images[file].String(); !slices.Contains(uses, text) {
			uses = append(uses, text)
		}
	}
	return strings.Join(uses, "; ")
}
