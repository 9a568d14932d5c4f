# Compiles the kernels to fat binaries, build/cuda/*.fatbin: PTX once for each source, and
# machine code for every architecture of ARCHS from that PTX. "make -C kernels/cuda cuda"
# runs it with the compiler on the PATH, scripts/kernels.sh with the pinned ones.
#
# The front end is that of CUDA 13, the assembler that of CUDA 12, so that drivers of both
# load the result: machine code has the ELF ABI of CUDA 12, which newer drivers load, too
# (sm_100 came with its successor, and with driver 570). PTX asks for the oldest ISA that
# has its instructions: an older driver's compiler refuses a newer number whatever the
# instructions are.
PTXAS ?= ptxas
# A100; L4 and RTX 40; H100 and H200; B200. Machine code runs on later devices of the same
# major number; PTX runs on anything newer through the driver's compiler.
ARCHS ?= 80 89 90 100
# The assembler of the oldest driver that is served: it must take the PTX. Empty: no check.
OLDEST ?=
OUT := build/cuda
FLAGS := -std=c++17 -O3 -ptx
ISA := 7.4
# The tensor map's fence is of ISA 8.3. Only machine code of it is kept: no other device
# runs it.
HOPPER_ISA := 8.3

# What needs an instruction of compute capability 9.0 where there is one, in another PTX for the machine code of
# these architectures; devices that take the PTX above do without.
LATER := few_rows few_norms
LATER_ARCHS := 90 100
LATER_ISA := 7.8

# Of kernels for many formats, which are large, machine code for an L4 is that for an A100.
LARGE := blocks experts few_blocks
LARGE_ARCHS := 80 90 100

kernels := $(filter-out attention_hopper,$(basename $(wildcard *.cu)))
headers := $(wildcard *.h)

all: $(kernels:%=$(OUT)/%.fatbin) $(OUT)/attention_hopper.fatbin

# The pragma is a hint of a later ISA.
$(OUT)/%.ptx: %.cu $(headers) | $(OUT)
	nvcc $(FLAGS) -gencode arch=compute_80,code=compute_80 $< -o $@.new
	sed -i 's/^\.version .*/.version $(ISA)/; /used_bytes_mask/d' $@.new
	$(if $(OLDEST),$(OLDEST) -arch=sm_80 $@.new -o /dev/null)
	mv $@.new $@
$(OUT)/attention_hopper.ptx: attention_hopper.cu $(headers) | $(OUT)
	nvcc $(FLAGS) -gencode arch=compute_90a,code=compute_90a $< -o $@.new
	sed -i 's/^\.version .*/.version $(HOPPER_ISA)/; /used_bytes_mask/d' $@.new
	mv $@.new $@

$(OUT)/%.90.ptx: %.cu $(headers) | $(OUT)
	nvcc $(FLAGS) -gencode arch=compute_90,code=compute_90 $< -o $@.new
	sed -i 's/^\.version .*/.version $(LATER_ISA)/; /used_bytes_mask/d' $@.new
	mv $@.new $@

# A spill fails the build, and so do products of a warpgroup that wait for each other and
# register counts that the compiler ignores.
define assemble
$(PTXAS) -arch=sm_$(1) -O3 -v $< -o $@.new 2>$@.log || { cat $@.log >&2; exit 1; }
! grep -E ' [1-9][0-9]* bytes spill|serialized|setmaxnreg' $@.log
rm $@.log
mv $@.new $@
endef
define machine_code
$(OUT)/%.sm_$(1).cubin: $(OUT)/%.ptx
	$$(call assemble,$(1))
endef
$(foreach arch,$(ARCHS) 90a,$(eval $(call machine_code,$(arch))))
define later_machine_code
$(OUT)/$(1).sm_$(2).cubin: $(OUT)/$(1).90.ptx
	$$(call assemble,$(2))
endef
$(foreach name,$(LATER),$(foreach arch,$(LATER_ARCHS),$(eval $(call later_machine_code,$(name),$(arch)))))

# Not compressed here: the archive is, as a whole.
define pack
fatbinary -64 --create=$@ --compress=false $(foreach arch,$(1),--image3=kind=elf,sm=$(arch),file=$(OUT)/$*.sm_$(arch).cubin) \
	--image3=kind=ptx,sm=80,file=$(OUT)/$*.ptx
endef
$(OUT)/%.fatbin: $(OUT)/%.ptx $(foreach arch,$(ARCHS),$(OUT)/%.sm_$(arch).cubin)
	$(call pack,$(ARCHS))
$(LARGE:%=$(OUT)/%.fatbin): $(OUT)/%.fatbin: $(OUT)/%.ptx $(foreach arch,$(LARGE_ARCHS),$(OUT)/%.sm_$(arch).cubin)
	$(call pack,$(LARGE_ARCHS))
$(OUT)/attention_hopper.fatbin: $(OUT)/attention_hopper.sm_90a.cubin
	fatbinary -64 --create=$@ --compress=false --image3=kind=elf,sm=90a,file=$<

$(OUT):
	mkdir -p $@
.PHONY: all
.SECONDARY:
.DELETE_ON_ERROR:
