//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"archive/tar"
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/kernels/fatbin"

	"github.com/klauspost/compress/zstd"
	"gorgonia.org/cu"
)

// The compiled kernels, one fat binary for each source; scripts/kernels.sh makes them. A fat
// binary of a later archive goes before that of the same name in an earlier one.
//
//go:embed kernels*.tar.zst
var packedKernels embed.FS

// archivesOf are the archives of a folder, the oldest first: the shortest name, so that
// kernels.9.tar.zst comes before kernels.10.tar.zst, and kernels.tar.zst before all.
func archivesOf(folder fs.FS) (archives [][]byte, err error) {
	names, err := fs.Glob(folder, "kernels*.tar.zst")
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, name := range names {
		data, readErr := fs.ReadFile(folder, name)
		archives, err = append(archives, data), errors.Join(err, readErr)
	}
	return archives, err
}

// kernelsVariable names a folder of fat binaries to use instead of those in the program.
const kernelsVariable = "GLIMPSE_CUDA_KERNELS"

// eachFatBinary calls f for every fat binary: the ones of the folder GLIMPSE_CUDA_KERNELS
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
	return eachPacked(packedKernels, f)
}

// eachPacked calls f for every fat binary in the archives of a folder, once for each name. The dictionary of an archive
// is what those before it hold, the oldest last.
func eachPacked(folder fs.FS, f func(name string, data []byte) error) error {
	archives, err := archivesOf(folder)
	if err == nil && len(archives) == 0 {
		err = errors.New("no archive of the kernels")
	}
	if err != nil {
		return err
	}
	sizes, end := make([]int, len(archives)), 0
	for i, archive := range archives {
		var header zstd.Header
		if err := header.Decode(archive); err != nil {
			return fmt.Errorf("archive of the kernels: %w", err)
		}
		sizes[i] = int(header.FrameContentSize)
		end += sizes[i]
	}
	all := make([]byte, end) // of all archives, the oldest last
	for i, archive := range archives {
		begin := end - sizes[i]
		if archives[i], err = unpack(all[begin:begin:end], archive, all[end:]); err != nil {
			return err
		}
		end = begin
	}
	seen := make(map[string]bool)
	for _, files := range slices.Backward(archives) {
		if err := eachOfArchive(files, seen, f); err != nil {
			return err
		}
	}
	return nil
}

// unpack is an archive uncompressed, by a dictionary if there is one, in the memory of room.
func unpack(room, archive, dictionary []byte) ([]byte, error) {
	options := []zstd.DOption{zstd.WithDecoderConcurrency(1)}
	if len(dictionary) > 0 {
		options = append(options, zstd.WithDecoderDictRaw(0, dictionary))
	}
	z, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	files, err := z.DecodeAll(archive, room)
	if err != nil {
		return nil, fmt.Errorf("archive of the kernels: %w", err)
	}
	return files, nil
}

// eachOfArchive calls f for every fat binary that has not been seen, and marks it.
func eachOfArchive(files []byte, seen map[string]bool, f func(name string, data []byte) error) error {
	for archive := tar.NewReader(bytes.NewReader(files)); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive of the kernels: %w", err)
		}
		name := strings.TrimSuffix(header.Name, ".fatbin")
		if seen[name] {
			continue
		}
		seen[name] = true
		data, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("archive of the kernels: %w", err)
		}
		if err := f(name, data); err != nil {
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

// image is the one that runs.
func (u imageUse) image() (text fatbin.Image) {
	for _, image := range u.images {
		if image.Kind == fatbin.ELF && image.Arch == u.arch {
			return image
		}
		if image.Kind == fatbin.PTX && image.Arch <= u.arch && image.Arch >= text.Arch {
			text = image
		}
	}
	return text
}

// String is the image that runs.
func (u imageUse) String() string {
	text := u.image()
	if text.Kind == fatbin.ELF {
		return text.String()
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
