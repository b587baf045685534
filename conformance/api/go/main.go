// Google's Go libraries against a server, over gRPC as they do it by themselves: what Trident's and other Go programs
// call. Prints a line for each step; a failure ends it with 1.
//
// usage: clients ENDPOINT PARENT [CERTIFICATE KEYFILE]
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	filestore "cloud.google.com/go/filestore/apiv1"
	"cloud.google.com/go/filestore/apiv1/filestorepb"
	netapp "cloud.google.com/go/netapp/apiv1"
	"cloud.google.com/go/netapp/apiv1/netapppb"
	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func must(err error, step string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", step, err)
		os.Exit(1)
	}
}

func expect(is bool, step string, got any) {
	if !is {
		must(fmt.Errorf("got %v", got), step)
	}
	fmt.Println(step)
}

// options are those of a program's author: an endpoint, and either a key file or nothing to sign in with.
func options(arguments []string) []option.ClientOption {
	all := []option.ClientOption{option.WithEndpoint(arguments[0])}
	if len(arguments) < 4 {
		plain := grpc.WithTransportCredentials(insecure.NewCredentials())
		return append(all, option.WithoutAuthentication(), option.WithGRPCDialOption(plain))
	}
	pem, err := os.ReadFile(arguments[2])
	must(err, "the certificate")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	secured := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots}))
	return append(all, option.WithCredentialsFile(arguments[3]), option.WithGRPCDialOption(secured))
}

func volumes(ctx context.Context, client *netapp.Client, parent string) {
	pool := parent + "/storagePools/go"
	making, err := client.CreateStoragePool(ctx, &netapppb.CreateStoragePoolRequest{
		Parent: parent, StoragePoolId: "go",
		StoragePool: &netapppb.StoragePool{
			ServiceLevel: netapppb.ServiceLevel_PREMIUM, CapacityGib: 2048, Network: parent + "/networks/default",
		},
	})
	must(err, "a pool")
	made, err := making.Wait(ctx)
	must(err, "waiting for the pool")
	expect(made.GetName() == pool && made.GetState() == netapppb.StoragePool_READY, "a pool", made)

	creating, err := client.CreateVolume(ctx, &netapppb.CreateVolumeRequest{
		Parent: parent, VolumeId: "home",
		Volume: &netapppb.Volume{
			ShareName: "home-go", StoragePool: "go", CapacityGib: 100,
			Protocols: []netapppb.Protocols{netapppb.Protocols_NFSV3},
		},
	})
	must(err, "a volume")
	volume, err := creating.Wait(ctx)
	must(err, "waiting for the volume")
	expect(strings.HasSuffix(volume.GetMountOptions()[0].GetExportFull(), "/home-go"), "a volume that can be mounted", volume)

	updating, err := client.UpdateVolume(ctx, &netapppb.UpdateVolumeRequest{
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"capacity_gib", "labels"}},
		Volume:     &netapppb.Volume{Name: volume.GetName(), CapacityGib: 200, Labels: map[string]string{"by": "go"}},
	})
	must(err, "an update")
	volume, err = updating.Wait(ctx)
	must(err, "waiting for the update")
	expect(volume.GetCapacityGib() == 200 && volume.GetLabels()["by"] == "go", "a larger volume", volume)

	snapping, err := client.CreateSnapshot(ctx, &netapppb.CreateSnapshotRequest{
		Parent: volume.GetName(), SnapshotId: "monday", Snapshot: &netapppb.Snapshot{Description: "first"},
	})
	must(err, "a snapshot")
	snapshot, err := snapping.Wait(ctx)
	must(err, "waiting for the snapshot")
	expect(snapshot.GetState() == netapppb.Snapshot_READY, "a snapshot", snapshot)

	found := 0
	all := client.ListVolumes(ctx, &netapppb.ListVolumesRequest{Parent: parent, Filter: `labels.by="go"`, PageSize: 1})
	for {
		_, err := all.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		must(err, "the list of volumes")
		found++
	}
	expect(found == 1, "a filtered list", found)

	_, err = client.GetVolume(ctx, &netapppb.GetVolumeRequest{Name: parent + "/volumes/none"})
	var refused *apierror.APIError
	expect(status.Code(err) == codes.NotFound && errors.As(err, &refused) && refused.Reason() != "", "a refusal with its reason", err)

	soon, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	_, err = client.GetVolume(soon, &netapppb.GetVolumeRequest{Name: volume.GetName()})
	expect(status.Code(err) == codes.DeadlineExceeded, "a deadline", err)

	deleting, err := client.DeleteVolume(ctx, &netapppb.DeleteVolumeRequest{Name: volume.GetName(), Force: true})
	must(err, "a deletion")
	must(deleting.Wait(ctx), "waiting for the deletion")
	removing, err := client.DeleteStoragePool(ctx, &netapppb.DeleteStoragePoolRequest{Name: pool})
	must(err, "the pool's deletion")
	must(removing.Wait(ctx), "waiting for the pool's deletion")
	fmt.Println("all deleted")
}

func instances(ctx context.Context, client *filestore.CloudFilestoreManagerClient, parent string) {
	making, err := client.CreateInstance(ctx, &filestorepb.CreateInstanceRequest{
		Parent: parent, InstanceId: "share",
		Instance: &filestorepb.Instance{
			Tier:       filestorepb.Instance_ZONAL,
			FileShares: []*filestorepb.FileShareConfig{{Name: "go_share", CapacityGb: 1024}},
			Networks: []*filestorepb.NetworkConfig{{
				Network: "default", Modes: []filestorepb.NetworkConfig_AddressMode{filestorepb.NetworkConfig_MODE_IPV4},
			}},
		},
	})
	must(err, "an instance")
	instance, err := making.Wait(ctx)
	must(err, "waiting for the instance")
	expect(instance.GetState() == filestorepb.Instance_READY && len(instance.GetNetworks()[0].GetIpAddresses()) == 1,
		"an instance with its address", instance)
	deleting, err := client.DeleteInstance(ctx, &filestorepb.DeleteInstanceRequest{Name: instance.GetName(), Force: true})
	must(err, "the instance's deletion")
	must(deleting.Wait(ctx), "waiting for the instance's deletion")
	fmt.Println("the instance deleted")
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	arguments := os.Args[1:]
	volumeClient, err := netapp.NewClient(ctx, options(arguments)...)
	must(err, "a client of NetApp Volumes")
	defer volumeClient.Close()
	volumes(ctx, volumeClient, arguments[1])
	instanceClient, err := filestore.NewCloudFilestoreManagerClient(ctx, options(arguments)...)
	must(err, "a client of Filestore")
	defer instanceClient.Close()
	instances(ctx, instanceClient, arguments[1])
}
